"""What several test folders share; holds no tests."""
