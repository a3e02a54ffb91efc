"""Other people's methods beside ours. (A package, so that a script of the same name is not taken for it.)"""
