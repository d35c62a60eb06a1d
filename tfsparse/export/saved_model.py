"""x"""
def export(model, directory, version=None): raise NotImplementedError
