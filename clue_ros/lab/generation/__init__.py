"""The annotation machine: dialogues about pictures, talked by models (InViG, section on 500K)."""
