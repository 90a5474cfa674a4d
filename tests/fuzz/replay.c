/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Replays the inputs of a fuzz target's corpus, once, without the fuzzer: a find that was fixed
 * stays so. The program test_fuzz_NAME takes tests/fuzz/corpus/NAME; it runs in the top folder and
 * speaks TAP. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

#define INPUT_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
	const char *name = argc ? strrchr(argv[0], '_') : NULL;
	char *folder AUTO_FREE = strf("tests/fuzz/corpus/%s", name ? name + 1 : "");
	DIR *dir = folder ? opendir(folder) : NULL;
	struct dirent *d;
	unsigned n = 0;

	while (dir && (d = readdir(dir))) {
		char *path AUTO_FREE = strf("%s/%s", folder, d->d_name);
		char *data AUTO_FREE = NULL;
		size_t bytes = 0;

		if (d->d_name[0] == '.' || !path)
			continue;
		if (read_file(path, INPUT_MAX, &data, &bytes)) {
			printf("not ok %u - %s cannot be read\n", ++n, path);
			continue;
		}
		LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
		printf("ok %u - %s\n", ++n, path);
	}
	if (dir)
		closedir(dir);
	printf("%s1..%u\n", n ? "" : "not ok 1 - no inputs\n", n ? n : 1);
	return n ? 0 : 1;
}
