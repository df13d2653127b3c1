"""Getting jobs to workers and noticing when they are lost."""
