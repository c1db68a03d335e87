"""Pictures whose Chinese can be read, and pages to look around in."""

from nmt.visualize.explorer import show

__all__ = ["show"]
