#pragma once

// Includes everything a program needs: session, data and files, training. With LibTorch (link
// horon::trainer) also what makes your own training loop run on many ranks.
#include "horon/data/format/packed.h"
#include "horon/data/open_dataset.h"
#include "horon/data/pipeline.h"
#include "horon/data/survey.h"
#include "horon/file/copy.h"
#include "horon/file/file.h"
#include "horon/runtime/session.h"
#if __has_include(<torch/torch.h>)
#include "horon/train/distributed.h"
#include "horon/train/model/model.h"
#include "horon/train/trainer.h"

namespace horon {
using train::average_statistics;
using train::broadcast_optimizer_state;
using train::broadcast_parameters;
using train::DeviceChoice;
using train::DistributedOptimizer;
using train::Ingredients;
using train::NanPolicy;
using train::OptimizerKind;
using train::RateScale;
using train::ResumeMode;
using train::run;
using train::RunArguments;
using train::Start;
using train::Strategy;
using train::TrainConfig;
using train::Trainer;
using train::TrainResult;
using train::WarmUp;
}  // namespace horon
#endif
