"""Theory of direct-connect graphs: expansions, isomorphism, automorphisms, orbits, optima."""
