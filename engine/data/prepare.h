/* Writing a set down in a form that needs no decoding: numbers and pictures as a pair of .npy files
 * (FOLDER/NAME-images.npy, FOLDER/NAME-labels.npy), tokens as FOLDER/NAME.bin. Files appear whole or
 * not at all. */
#pragma once
#include "engine/data/dataset.h"

MUST_CHECK enum error dataset_prepare(struct dataset *d, const char *folder, const char *name);
/* Writes the characters that tokens stand for, one after the other, as FOLDER/characters.txt. */
MUST_CHECK enum error dataset_prepare_characters(const struct dataset *d, const char *folder);
/* Whether tokens are written as u16 (else i32). */
bool dataset_prepared_short(const struct dataset *d);
/* Whether tokens stand for bytes of text, which need no such file. */
bool dataset_prepared_bytes(const struct dataset *d);
