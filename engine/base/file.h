/* Files, done carefully: whole reads with a limit, and replacement that is either old or new. A function that can fail
 * takes NULL for a path as what it is: one for which there was no memory, as its maker has said. */
#pragma once
#include "engine/base/memory.h"

#include <limits.h>
#include <stdio.h>

/* Reads a regular file of at most 'limit' bytes into the pool, with a NUL after it. Follows no
 * surprise: a directory, a fifo or a larger file is an error that says so (ERR_INPUT missing,
 * ERR_DATA too large or no file, ERR_IO). */
MUST_CHECK enum error file_read(const char *path, size_t limit, struct pool *pool, char **text, size_t *length);
/* Writes all of data, going on after EINTR and short writes. */
MUST_CHECK enum error file_write_all(int fd, const void *data, size_t n, const char *path);
/* The same, to standard output: a reader that has gone is no failure. */
MUST_CHECK enum error file_write_console(int fd, const void *data, size_t n);
/* Whether the reading end of this pipe, socket or terminal is closed. */
bool file_reader_gone(int fd);
/* Columns of the terminal; 0: it is none. */
int file_columns(int fd);
/* pread until n bytes are there; fewer is ERR_DATA ("ends at ..."). */
MUST_CHECK enum error file_pread_all(int fd, void *data, size_t n, int64_t offset, const char *path);
/* A file in the making. It lies beside its place under a name of its own, 'made', until it is closed without an error:
 * then it is synced and takes its place, where links lead to it, too. What is no file, as a device or a FIFO, nothing
 * can replace: it is written into, and 'made' is empty. */
struct file_new {
    int fd;
    char path[PATH_MAX], made[PATH_MAX];
};
MUST_CHECK enum error file_new_open(struct file_new *f, const char *path);
/* A stream to it with a descriptor of its own, to be closed before the file is. */
MUST_CHECK enum error file_new_stream(const struct file_new *f, FILE **out);
/* err: what has gone wrong so far; then only what was made goes. */
MUST_CHECK enum error file_new_close(struct file_new *f, enum error err);
/* The same with all of its bytes at hand. */
MUST_CHECK enum error file_replace(const char *path, const void *data, size_t n);
/* The same, but the folder is not synced: until it has been, a host that fails may come back with the old file. For several
 * files of one folder, which is synced after the last. */
MUST_CHECK enum error file_place(const char *path, const void *data, size_t n);
/* A text that a stream writes into memory, so that it goes on whole or not at all. err: what has gone wrong so far; of a
 * text that has failed nothing is left. */
struct file_text {
    FILE *out;
    char *text; /* once it is closed: NUL-terminated, to be freed */
    size_t n;
};
MUST_CHECK enum error file_text_open(struct file_text *t);
MUST_CHECK enum error file_text_close(struct file_text *t, enum error err);
/* Close it, and free the text when it is in the file; in the pool, which gives it (NULL: no memory). */
MUST_CHECK enum error file_text_save(struct file_text *t, enum error err, const char *path);
char *file_text_keep(struct file_text *t, struct pool *pool);
MUST_CHECK enum error file_sync_folder(const char *path);
/* Syncs all that has been written to the folder's file system. */
MUST_CHECK enum error file_sync_system(const char *path);
/* fsync; but nothing where this variable is set: then the process that has set it syncs the work of many processes at once. */
#define SYNC_VARIABLE "ENGINE_SYNC"
MUST_CHECK int file_sync(int fd);
/* mkdir -p. */
MUST_CHECK enum error file_make_folders(const char *path);
/* Creates an empty folder with a unique name that begins with engine-NAME, in TMPDIR. First it removes folders with
 * this name whose processes were killed. The path lies in the pool. */
MUST_CHECK enum error file_make_temporary(const char *name, struct pool *pool, char **out);
/* The folders in 'folder' whose names begin with 'prefix' are their makers', who have locked them for as long as they live.
 * Counts these; with 'sweep' the others of this user are removed. */
int file_count_owned(const char *folder, const char *prefix, bool sweep);
/* Gives it another name, by which it stays; path is where it is then, in the pool. */
void file_keep_temporary(struct pool *pool, char **path);
/* Removes a folder and all in it; follows no links. Missing is fine. */
MUST_CHECK enum error file_remove_tree(const char *path);
/* Takes the lock of an open file until the file is closed; false: another process has it. A process that only asks
 * holds the lock for a moment, and this function waits for it. */
bool file_lock(int fd);
/* Whether a process of this host has locked the file; false where there is none. It asks without keeping others out. */
bool file_is_locked(const char *path);
/* The file that this code was loaded from: the shared library, or the program where it stands alone. */
const char *file_of_code(void);
/* The first line of a small file, without its end; "" and false: there is none. */
bool file_line(const char *path, char *out, size_t n);
bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* "b.c" of "a/b.c", the whole of a path without a slash. */
const char *file_last_part(const char *path);
/* Whether both paths lead to one file or folder. */
bool file_is_same(const char *a, const char *b);
