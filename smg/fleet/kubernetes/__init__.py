"""Pods of a Kubernetes cluster as a source of workers (spec api-and-ops 7.1; field case RL-07)."""
