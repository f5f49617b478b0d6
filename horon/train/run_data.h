#pragma once

#include <map>
#include <memory>
#include <string>

#include "horon/comm/communicator.h"
#include "horon/data/pipeline.h"
#include "horon/train/trainer.h"

namespace horon::train {

// The data sets of a run and the form in which the network receives them.
struct RunData {
  std::shared_ptr<Dataset> train;
  std::shared_ptr<Dataset> validation;  // decides which weights are best; null: none
  std::shared_ptr<Dataset> test;        // null: none
  ModelShape shape;
  std::string recipe;

  // What is evaluated during training; null: nothing.
  const std::shared_ptr<Dataset>& watched() const { return validation ? validation : test; }
};

// Opens the data sets that `config` names or `own` returns. Fills in settings that were left open
// (image_size, num_classes, preprocessing) from the data. only_evaluates: the training set is left
// out (null) where the settings suffice. UsageError, IoError, CorruptRecord.
RunData open_data(TrainConfig& config, const DatasetMaker& own, bool only_evaluates);

// Sizes of the sets, form of the images and what is missing, as text.
std::string describe_data(const RunData& data);

constexpr uint64_t kSmallestShard = 2;  // batch norm needs two samples
// Ranks that wait for each other inside a model (--sync_batch_norm) all need samples: UsageError if
// some batch has too few.
void check_batch_parts(const TrainConfig& config, uint64_t samples, uint64_t batch, int ranks);

// UsageError (exit code 11) on all ranks if data differ, by size and a digest of the index; names
// the ranks that differ from rank 0. The location of the files does not matter. All ranks.
void compare_data(Communicator& world, const RunData& data);

// Adds the input's memory and damaged records to `result`; a record found by several ranks counts
// once. All ranks.
void sum_up_input(Communicator& world, const std::map<std::string, Pipeline::Report>& by_split,
                  bool may_be_corrupt, TrainResult& result);

}  // namespace horon::train
