"""Export of a checkpoint to GGUF, the format of llama.cpp and its relatives."""
