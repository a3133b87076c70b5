"""Capsules and runs elsewhere: object stores, container registries, and the OCI image that a registry takes."""
