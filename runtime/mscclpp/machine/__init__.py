"""Interpreter of execution plans with race detection."""
