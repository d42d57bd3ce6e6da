/* The file by which processes of one user find the store that one of them serves on this host: its port, and its key. */
#pragma once
#include "transport/base/secret.h"

/* In place of what a store has left there; written whole or not at all, for this user alone. ERR_DATA: there is a file
 * of somebody else's making. */
MUST_CHECK enum error file_announce(const char *path, int port, const char *key);
/* *port is 0 as long as nobody has announced a store. */
MUST_CHECK enum error file_find(const char *path, int *port, char key[SECRET_SIZE]);
/* Removes the file, if it is still the one of that key. */
void file_withdraw(const char *path, const char *key);
