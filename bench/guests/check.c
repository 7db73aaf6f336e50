/* What a guest has built is right if this ends well: text of known content is packed and unpacked by it, at several levels. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { BYTES = 256 << 10 };

int main(void)
{
	static char text[BYTES], again[BYTES];
	size_t room = ZSTD_compressBound(BYTES), sum = 0;
	char *packed = malloc(room);
	uint64_t state = 1;

	if (!packed)
		return 1;
	for (size_t i = 0; i < BYTES; i++) {
		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		/* Words that come again, and some that do not. */
		text[i] = state % 8 ? text[i / 3] + 'a' : (char)(state >> 32);
	}
	for (int level = 1; level <= 9; level += 4) {
		size_t size = ZSTD_compress(packed, room, text, BYTES, level);

		if (ZSTD_isError(size) || ZSTD_decompress(again, BYTES, packed, size) != BYTES || memcmp(text, again, BYTES))
			return 1;
		sum += size;
	}
	printf("intact %zu\n", sum);
	return 0;
}
