#include <cstdio>
#include <exception>

float sum_of_ranks(int& size);

int main() {
  try {
    int size = 0;
    const float sum = sum_of_ranks(size);
    std::printf("sum %g of %d\n", sum, size);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
