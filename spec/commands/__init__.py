"""The commands of the command line, one module each; every module offers `command`."""
