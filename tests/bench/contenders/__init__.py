"""Who is compared, a module each; it is imported in the contender's own environment.

    SETTINGS, PACKAGES          what it runs with, for the report; installed packages to name
    use_threads(n)              before anything is computed
    Table(dim, optimizer, capacity)
        ids(array), floats(array)   int64, float32 arrays as what its other methods take
        insert(ids, rows)           new ids `[n]` and zeros `[n, dim]`
        lookup(ids)                 rows of known ids `[n]`
        save(folder), restore(folder)   all rows with their slots
        step(ids, gradients)        looks ids `[..]` up, and trains: gradients `[.., dim]`
    embedding(dim, capacity), optimizer(keras_name)     for `fit`: a Keras layer, an optimizer

A module has what its benchmarks use. `optimizer` is "sgd", "adagrad" or "adam"; `capacity` the
number of rows to come, for those that are faster when they know it, or None.
"""
