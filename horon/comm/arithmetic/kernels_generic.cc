#define HORON_KERNELS generic_table
#define HORON_KERNEL_NAME "generic"
#define HORON_VECTOR_BYTES 16
#include "horon/comm/arithmetic/kernels_impl.h"
