"""The command `tfsparse`.

Installed as the package `tfsparse_cli`, beside `tfsparse` and not inside it: whatever is below
`tfsparse` can be imported only when `import tfsparse` works, and `tfsparse doctor` is for when it
does not. So nothing here imports tfsparse before a command needs it.
"""
