"""Direct-connect families: tori, circulants, Kautz and de Bruijn graphs, distance-regular graphs."""
