#pragma once

#include <map>
#include <memory>
#include <string>

#include "horon/comm/communicator.h"
#include "horon/data/pipeline.h"
#include "horon/train/trainer.h"

namespace horon::train {

// What a run learns from, what it is measured by, and the form in which the network gets it.
struct RunData {
  std::shared_ptr<Dataset> train;
  std::shared_ptr<Dataset> validation;  // decides what is best; null: there is none
  std::shared_ptr<Dataset> test;        // null: there is none
  ModelShape shape;
  std::string recipe;

  // What is evaluated along the way; null: nothing.
  const std::shared_ptr<Dataset>& watched() const { return validation ? validation : test; }
};

// Opens what `config` names, or `own` gives. The settings that were left open (image_size,
// num_classes, preprocessing) get their values, from the data. Only to evaluate: the training set
// is left out (null) where the settings say enough. UsageError, IoError, CorruptRecord.
RunData open_data(TrainConfig& config, const DatasetMaker& own, bool only_evaluates);

// Sizes of the sets, form of the pictures, what is missing: for people.
std::string describe_data(const RunData& data);

constexpr uint64_t kSmallestShard = 2;  // batch norm needs two samples
// Ranks that wait for each other inside a model (--sync_batch_norm) must all have samples:
// UsageError if some batch has too few.
void check_shares(const TrainConfig& config, uint64_t samples, uint64_t batch, int ranks);

// All ranks: UsageError (exit code 11) on all, naming those whose data is not rank 0's, by its size
// and a digest of its index; where its files lie does not matter.
void compare_data(Communicator& world, const RunData& data);

// All ranks: what the input took and met, into `result`. What several ranks have met counts once.
void sum_up_input(Communicator& world, const std::map<std::string, Pipeline::Report>& by_split,
                  bool may_be_corrupt, TrainResult& result);

}  // namespace horon::train
