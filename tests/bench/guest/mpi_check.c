// SPDX-License-Identifier: GPL-2.0-or-later
/* An MPI program that checks what it receives: mpi_check SECONDS. Two ranks send each other
 * messages of 1 byte to 256 KiB (eager and rendezvous), whose bytes follow from their number, and
 * agree on sums. Rank 0 decides when the time is over. Prints "mpi_check: N rounds, M bytes, 0
 * wrong". */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES_MAX (256u << 10)

static uint32_t mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ x >> 16;
}

static uint32_t bytes_of(uint32_t round)
{
	return 1 + mix(round) % (1u << mix(round ^ 0x5a5a) % 19);
}

static void fill(uint8_t *p, uint32_t n, uint32_t round, int rank)
{
	uint32_t seed = mix(round * 2 + (uint32_t)rank);

	for (uint32_t i = 0; i < n; i++)
		p[i] = (uint8_t)(seed >> i % 4 * 8) + (uint8_t)i;
}

static unsigned wrong_bytes(const uint8_t *p, uint32_t n, uint32_t round, int rank)
{
	uint32_t seed = mix(round * 2 + (uint32_t)rank);
	unsigned wrong = 0;

	for (uint32_t i = 0; i < n; i++)
		wrong += p[i] != (uint8_t)((seed >> i % 4 * 8) + i);
	return wrong;
}

int main(int argc, char **argv)
{
	static uint8_t mine[BYTES_MAX], theirs[BYTES_MAX];
	double seconds = argc > 1 ? atof(argv[1]) : 5, end;
	uint64_t bytes = 0, wrong = 0, sum, total;
	uint32_t round = 0;
	int rank, size, more = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (end = MPI_Wtime() + seconds; more; round++) {
		uint32_t n = bytes_of(round);

		fill(mine, n, round, rank);
		MPI_Sendrecv(mine, (int)n, MPI_BYTE, !rank, 7, theirs, (int)n, MPI_BYTE, !rank, 7,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		wrong += wrong_bytes(theirs, n, round, !rank);
		bytes += n;
		sum = mix(round) + (uint32_t)rank;
		MPI_Allreduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
		wrong += total != 2ull * mix(round) + 1;
		more = MPI_Wtime() < end;
		MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	MPI_Allreduce(&wrong, &total, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (!rank)
		printf("mpi_check: %u rounds, %llu bytes, %llu wrong\n", round,
		       (unsigned long long)bytes, (unsigned long long)total);
	MPI_Finalize();
	return total ? 1 : 0;
}
