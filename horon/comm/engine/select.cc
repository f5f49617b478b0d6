#include "horon/comm/engine/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

size_t index_of(OpKind kind) { return static_cast<size_t>(kind); }

bool is_possible(const AlgorithmRow& row, const Situation& situation) {
  return row.reduction == situation.reduction && row.device == situation.device &&
         (row.only == nullptr || row.only->holds(situation));
}

bool is_within(const AlgorithmRow& row, const Situation& situation) {
  return situation.bytes <= row.most_bytes && situation.ranks <= row.most_ranks;
}

// Everything by which a row is chosen.
uint64_t hash_row(const AlgorithmRow& row, uint64_t seed) {
  const std::array<uint64_t, 6> numbers = {
      index_of(row.kind),
      static_cast<uint64_t>(row.algorithm),
      row.most_bytes,
      static_cast<uint64_t>(row.most_ranks),
      static_cast<uint64_t>(row.reduction),
      static_cast<uint64_t>(row.device),
  };
  seed = hash_bytes(numbers.data(), sizeof(numbers), seed);
  if (row.only == nullptr) return seed;
  return hash_bytes(row.only->words.data(), row.only->words.size(), seed);
}

}  // namespace

AlgorithmTable::AlgorithmTable(std::vector<AlgorithmRow> rows, std::string_view backend,
                               std::string_view overrides)
    : rows_(std::move(rows)) {
  std::stable_sort(rows_.begin(), rows_.end(),
                   [](const auto& a, const auto& b) { return a.kind < b.kind; });
  uint64_t hash = 0;
  for (const AlgorithmRow& row : rows_) {
    ++first_[index_of(row.kind) + 1];
    hash = hash_row(row, hash);
  }
  for (size_t kind = 0; kind < kKinds; ++kind) first_[kind + 1] += first_[kind];
  for (const std::string& one : split(overrides, ',')) add_override(backend, one);
  for (const auto& one : overrides_) {
    const uint8_t word = one ? static_cast<uint8_t>(*one) : 0xff;
    hash = hash_bytes(&word, sizeof(word), hash);
  }
  fingerprint_ = static_cast<uint32_t>(hash ^ (hash >> 32));
}

void AlgorithmTable::add_override(std::string_view backend, const std::string& text) {
  std::vector<std::string> known;
  for (const AlgorithmRow& row : rows_) {
    const std::string word = override_of(row);
    if (word == text) {
      auto& place = overrides_[index_of(row.kind)];
      require(!place || place == row.algorithm,
              fmt::format("algorithm: {} is given twice", name_of(row.kind)));
      place = row.algorithm;
      return;
    }
    if (std::find(known.begin(), known.end(), word) == known.end()) known.push_back(word);
  }
  throw UsageError(fmt::format("algorithm: backend {} has no {}; it has {}", backend, text,
                               fmt::join(known, ", ")));
}

const AlgorithmRow* AlgorithmTable::find(const Situation& situation) const {
  const size_t kind = index_of(situation.kind);
  const std::span<const AlgorithmRow> rows(rows_.data() + first_[kind],
                                           first_[kind + 1] - first_[kind]);
  if (overrides_[kind]) {
    for (const AlgorithmRow& row : rows) {
      if (row.algorithm == *overrides_[kind] && is_possible(row, situation)) return &row;
    }
  }
  for (const AlgorithmRow& row : rows) {
    if (is_possible(row, situation) && is_within(row, situation)) return &row;
  }
  return nullptr;
}

Algorithm AlgorithmTable::choose(const Situation& situation) const {
  const AlgorithmRow* row = find(situation);
  if (row == nullptr)
    throw Error(fmt::format("no algorithm was published for {}", name_of(situation.kind)));
  return row->algorithm;
}

}  // namespace horon
