#pragma once

// Marks what a shared part exports; everything else is hidden.
#define HORON_API __attribute__((visibility("default")))
