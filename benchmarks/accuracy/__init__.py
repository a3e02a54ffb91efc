"""Eight data sets, and accuracy on them. (A package, so that a script of the same name is not taken for it.)"""
