"""MSCCL++ execution plans: export, format, lowering, interpreter and lint."""
