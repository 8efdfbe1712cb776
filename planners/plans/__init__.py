"""`Plan`, proof, files, stages."""
