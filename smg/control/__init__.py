"""The control process: the fleet's only writer."""
