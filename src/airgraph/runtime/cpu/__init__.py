"""The CPU runtime: a recorder of ATen calls, a memory plan, a native tape."""
