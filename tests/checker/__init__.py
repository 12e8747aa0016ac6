"""Many clients play against a broker that is killed; their own histories prove that it kept its promises."""
