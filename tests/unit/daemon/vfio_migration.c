/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The question whether a VF migrates, against a stand-in for the kernel's VFIO. */
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <string.h>

#include "common/util.h"
#include "daemon/vf/vfio_migration.h"
#include "tests/fake/host/hca.h"

static const struct fake_card cx6 = {
	.bdf = "0000:3b:00.0",
	.ibdev = "mlx5_0",
	.netdev = "ib0",
	.device = "0x101b",
	.vf_device = "0x101c",
	.guid = 0x248a0703004bf0a8,
	.ifindex = 4,
	.total_vfs = 4,
	.vfs = 1,
};
static const struct hca_vf vf0 = {.name = "mlx5_0vf0", .bdf = "0000:3b:00.1"};

static struct fake_host h;

/* The kernel's order: container, group, the group into the container, an IOMMU, the device. */
static struct {
	char opened[2][64];
	unsigned opens;
	bool in_container, has_iommu, gives_device;
	uint64_t flags; /* flags of the device's migration feature */
	int open_errno, feature_errno;
} played;

static int played_open(const char *path, int flags)
{
	errno = played.open_errno;
	if (errno)
		return -1;
	snprintf(played.opened[played.opens++ % 2], 64, "%s", strrchr(path, '/') + 1);
	return open("/dev/null", flags);
}

static int played_feature(struct vfio_device_feature *f)
{
	struct vfio_device_feature_migration *m = (void *)f->data;

	errno = played.feature_errno;
	if (!errno && (!played.gives_device || f->argsz < sizeof *f + sizeof *m ||
		       f->flags != (VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_MIGRATION)))
		errno = EINVAL;
	if (errno)
		return -1;
	m->flags = played.flags;
	return 0;
}

static int played_ioctl(int fd, unsigned long request, void *arg)
{
	(void)fd;
	switch (request) {
	case VFIO_GROUP_SET_CONTAINER:
		played.in_container = true;
		return 0;
	case VFIO_SET_IOMMU:
		played.has_iommu = played.in_container;
		return 0;
	case VFIO_GROUP_GET_DEVICE_FD:
		played.gives_device = played.has_iommu && !strcmp(arg, vf0.bdf);
		return played.gives_device ? open("/dev/null", O_RDONLY) : (errno = EINVAL, -1);
	case VFIO_DEVICE_FEATURE:
		return played_feature(arg);
	default:
		errno = ENOTTY;
		return -1;
	}
}

static const struct vfio_calls calls = {played_open, played_ioctl};

static int setup(void **state)
{
	(void)state;
	fake_host_init(&h);
	fake_host_add(&h, &cx6);
	memset(&played, 0, sizeof played);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_host_end(&h);
	return 0;
}

static void test_verdicts(void **state)
{
	static const struct {
		uint64_t flags;
		int feature_errno;
		bool can;
	} cases[] = {
		{VFIO_MIGRATION_STOP_COPY, 0, true},
		{VFIO_MIGRATION_STOP_COPY | VFIO_MIGRATION_P2P, 0, true},
		{VFIO_MIGRATION_P2P, 0, false},
		{0, 0, false},
		{VFIO_MIGRATION_STOP_COPY, ENOTTY, false}, /* plain vfio-pci, and before 5.18 */
	};
	char error[HTTP_ERROR_MAX] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool can = !cases[i].can;

		played.flags = cases[i].flags;
		played.feature_errno = cases[i].feature_errno;
		assert_int_equal(vfio_migration_probe(&h.host, &vf0, &calls, &can, error), 0);
		assert_int_equal(can, cases[i].can);
	}
	assert_string_equal(played.opened[0], "vfio");
	assert_string_equal(played.opened[1], "401"); /* the VF's IOMMU group */
}

static void test_what_goes_wrong(void **state)
{
	struct hca_vf nowhere = {.name = "mlx5_0vf9", .bdf = "0000:3b:01.1"};
	char error[HTTP_ERROR_MAX];
	bool can = true;

	(void)state;
	played.feature_errno = EIO;
	assert_int_equal(vfio_migration_probe(&h.host, &vf0, &calls, &can, error), -EIO);
	assert_non_null(strstr(error, "mlx5_0vf0"));
	played.open_errno = EBUSY;
	assert_int_equal(vfio_migration_probe(&h.host, &vf0, &calls, &can, error), -EBUSY);
	played.open_errno = 0;
	assert_true(vfio_migration_probe(&h.host, &nowhere, &calls, &can, error) < 0);
	assert_true(can); /* untouched */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_verdicts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_goes_wrong, setup, teardown),
	};

	return RUN_TESTS(tests);
}
