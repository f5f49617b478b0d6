// CIFAR-10 with LibTorch, in one process. distributed.cc is the same program on many.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace {

constexpr const char* kUsage =
    "usage: cifar10 [FOLDER [EPOCHS [NETWORK]]]\n"
    "  FOLDER   has data_batch_1.bin to data_batch_5.bin; \"\" (the default): images drawn here\n"
    "  EPOCHS   passes over the images (3)\n"
    "  NETWORK  normed: with batch norm (the default); plain: without\n"
    "Writes the weights to cifar10.pt.\n";

constexpr int64_t kBatch = 80;  // divides 50,000: all batches have the same size

struct Pictures {
  torch::Tensor images;  // N x 3 x 32 x 32, bytes
  torch::Tensor labels;  // N
};

// A record: one byte of label, then 3 x 32 x 32 bytes of pixels.
Pictures read_pictures(const std::string& folder) {
  std::string bytes;
  for (int i = 1; i <= 5; ++i) {
    const std::string path = folder + "/data_batch_" + std::to_string(i) + ".bin";
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path + " cannot be read");
    bytes.append(std::istreambuf_iterator<char>(file), {});
  }
  if (bytes.empty() || bytes.size() % 3073 != 0)
    throw std::runtime_error(folder + " has files that are not CIFAR-10's");
  const auto count = static_cast<int64_t>(bytes.size()) / 3073;
  const auto records = torch::from_blob(bytes.data(), {count, 3073}, torch::kUInt8).clone();
  return {records.narrow(1, 1, 3072).reshape({count, 3, 32, 32}),
          records.select(1, 0).to(torch::kInt64)};
}

// Ten patterns under noise.
Pictures draw_pictures() {
  const auto labels = torch::arange(2000, torch::kInt64).remainder(10);
  const auto patterns = torch::rand({10, 3, 32, 32}).index_select(0, labels);
  const auto images = 0.3 * patterns + 0.7 * torch::rand_like(patterns);
  return {(images * 255).to(torch::kUInt8), labels};
}

torch::nn::Sequential make_network(bool normed) {
  torch::nn::Sequential network;
  int64_t from = 3;
  for (const int64_t to : {16, 32, 64}) {
    network->push_back(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).stride(2).padding(1)));
    if (normed) network->push_back(torch::nn::BatchNorm2d(to));
    network->push_back(torch::nn::ReLU());
    from = to;
  }
  network->push_back(torch::nn::Flatten());
  network->push_back(torch::nn::Linear(64 * 4 * 4, 10));
  return network;
}

void train(const std::string& folder, int epochs, bool normed) {
  torch::manual_seed(1);
  const Pictures data = folder.empty() ? draw_pictures() : read_pictures(folder);
  const int64_t count = data.labels.size(0);
  auto network = make_network(normed);
  torch::optim::Adam optimizer(network->parameters(), torch::optim::AdamOptions(0.001));

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const auto order = torch::randperm(count, torch::kInt64);
    double sum = 0;
    for (int64_t at = 0; at < count; at += kBatch) {
      const int64_t end = std::min(at + kBatch, count);
      const auto batch = order.slice(0, at, end);
      const auto images = data.images.index_select(0, batch).to(torch::kFloat32) / 255 - 0.5;
      const auto labels = data.labels.index_select(0, batch);
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(network->forward(images), labels);
      loss.backward();
      optimizer.step();
      sum += loss.item<double>() * static_cast<double>(batch.size(0));
    }
    std::printf("epoch %d  loss %.6f\n", epoch, sum / static_cast<double>(count));
    std::fflush(stdout);
  }
  torch::save(network, "cifar10.pt");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 3;
  const std::string network = argc > 3 ? argv[3] : "normed";
  if (folder == "--help" || folder == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (argc > 4 || epochs < 1 || (network != "normed" && network != "plain")) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    train(folder, epochs, network == "normed");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cifar10: %s\n", error.what());
    return 1;
  }
}
