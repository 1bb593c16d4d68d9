"""What must outlive a crash: the only place in Catchment that makes the disk hold something.

| module | what goes in | what comes out |
|---|---|---|
| `files` | the few calls to the operating system that all of this is made of | real files |
| `volatile` | the same calls | files in memory that lose what was not synced when power fails |
| `store`, `folder` | small files under a local path or a URI | each is there whole, or not at all |
| `log` | numbered entries, appended | entries in order, and what of them cannot be read any more |
| `records` | typed records, as notes and as entries of logs | the same records, checked when read |
| `journaled` | entries, and now and then a state | the last state and the entries since |
| `sealed` | bytes and a name | bytes under a checksum, so that damage is noticed |
| `lock` | a folder | the right to write there, for one process at a time |

What is synced, and what that costs:

- `Folder.write`: the file before it gets its name, and the folder after: two syncs. A new folder
  costs one sync of the folder that it is in.
- `FileLog.append`: the file; one sync. The first entry of a segment (every 8 MB, and after a start)
  also costs one sync of the folder. The mark that says how far a log has come is written without a
  sync.
- `FileLog.trim`: nothing, except that segments are deleted only after a new segment, which says
  that they are not needed, is safe: two syncs for every 8 MB that are deleted. Deleting needs no
  sync: a file that comes back is known to be superseded.
- `Folder.remove` and a lock: nothing. A file that comes back must do no harm to whoever removes it.
"""
