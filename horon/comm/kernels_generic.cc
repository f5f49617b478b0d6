#define HORON_KERNELS generic_table
#define HORON_KERNEL_NAME "generic"
#include "horon/comm/kernels_impl.h"
