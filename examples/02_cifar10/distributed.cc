// CIFAR-10 with LibTorch, on many processes: horon run -np 4 example_cifar10_distributed
#include <cstdio>

#include "horon/horon.h"

int main(int argc, char** argv) {
  const std::string data_dir = argc > 1 ? argv[1] : "";  // CIFAR-10's files; "": shapes, drawn here
  const uint64_t steps = argc > 2 ? std::stoul(argv[2]) : 500;
  const std::string name = argc > 3 ? argv[3] : "resnet_v1_50_slim";
  horon::Session session;

  horon::DatasetRequest request;
  request.name = data_dir.empty() ? "shapes10" : "cifar10";
  request.folder = data_dir;

  horon::PipelineOptions input;
  input.dataset = horon::open_dataset(request);
  input.recipe = horon::find_recipe("cifar", true, 32, 32);
  input.batch = 128;
  input.rank = session.rank();
  input.ranks = session.size();
  horon::Pipeline batches(input);

  torch::manual_seed(1);
  const auto model = horon::train::make_model(name, {.classes = 10, .image_size = 32});
  auto adam = std::make_unique<torch::optim::Adam>(
      model->parameters(), torch::optim::AdamOptions(0.0002).betas({0.5, 0.999}));
  horon::broadcast_parameters(session, *model);
  horon::DistributedOptimizer optimizer(session, std::move(adam), model->named_parameters(),
                                        {.averages = false});

  for (uint64_t step = 1; step <= steps; ++step) {
    const horon::Batch batch = *batches.next();
    const auto images = torch::from_blob(batch.pixels.data, {int64_t(batch.count()), 3, 32, 32});
    const auto labels = torch::tensor(batch.labels);
    optimizer.zero_grad();
    const auto logits = model->forward(images);
    const auto loss = model->loss(logits, labels, 0) / double(batch.global_count);
    loss.backward();
    optimizer.step();
    if (step % 10 != 0) continue;
    const double shown = session.sum(loss.item<double>());
    if (session.is_first()) std::printf("step %4lu  loss %.4f\n", step, shown);
  }
  if (session.is_first()) torch::save(model, "cifar10.pt");
}
