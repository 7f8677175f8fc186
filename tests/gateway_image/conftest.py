"""A real engine and an image, which `.ci/with-docker` brings; without them nothing is tested."""

import os

collect_ignore = [] if os.environ.get("TEST_DOCKER_IMAGE") else ["test_image.py"]
