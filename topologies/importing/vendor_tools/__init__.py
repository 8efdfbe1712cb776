"""Nvidia-smi, amd-smi, rocm-smi, sysfs."""
