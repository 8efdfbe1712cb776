"""Readers of the output of nvidia-smi, amd-smi and rocm-smi, and of sysfs files."""
