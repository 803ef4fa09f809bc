"""All kinds of steps: importing this registers them."""

from tests.networks.kinds import anything, images, joins, sequences, vectors

__all__ = ["anything", "images", "joins", "sequences", "vectors"]
