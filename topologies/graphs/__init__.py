"""Graph theory of direct-connect networks: expansions, isomorphism, automorphisms, orbits, Moore bounds."""
