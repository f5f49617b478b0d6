#include "horon/runtime/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "horon/net/wire.h"

namespace horon {

std::string pack_report(const PendingReport& report) {
  return Packer()
      .u8(report.stuck ? 1 : 0)
      .u8(report.fresh ? 1 : 0)
      .text(pack_specs(report.pending))
      .take();
}

PendingReport unpack_report(std::string_view bytes) {
  Unpacker from(bytes);
  PendingReport report;
  report.stuck = from.u8() != 0;
  report.fresh = from.u8() != 0;
  report.pending = unpack_specs(from.text());
  from.end();
  return report;
}

namespace {

// For each name, what each rank submitted under it.
using Table = std::map<std::string, std::vector<const TensorSpec*>>;

Table tabulate(std::span<const PendingReport> reports) {
  Table table;
  for (size_t i = 0; i < reports.size(); ++i) {
    for (const TensorSpec& spec : reports[i].pending) {
      auto& row = table[spec.name];
      row.resize(reports.size());
      row[i] = &spec;
    }
  }
  return table;
}

bool all_have(const std::vector<const TensorSpec*>& row) {
  return std::all_of(row.begin(), row.end(),
                     [](const TensorSpec* spec) { return spec != nullptr; });
}

std::string find_mismatch(const std::vector<const TensorSpec*>& row, std::span<const int> ranks) {
  for (const TensorSpec* spec : row) {
    if (same_request(*row.front(), *spec)) continue;
    std::string text = "ranks requested different operations: ";
    for (size_t i = 0; i < row.size(); ++i)
      text += fmt::format("{}rank {}: {}", i == 0 ? "" : ", ", ranks[i], describe(*row[i]));
    return text;
  }
  return "";
}

}  // namespace

Decision decide(std::span<const PendingReport> reports, std::span<const int> ranks,
                const Plan& plan) {
  Decision decision;
  if (reports.empty()) return decision;
  const Table table = tabulate(reports);
  const bool stuck = std::any_of(reports.begin(), reports.end(),
                                 [](const PendingReport& one) { return one.stuck; });
  decision.progress = std::any_of(reports.begin(), reports.end(),
                                  [](const PendingReport& one) { return one.fresh; });

  const auto is_whole = [&](const std::string& name) {
    for (const std::string& other : plan.names_in(plan.bucket_of(name))) {
      const auto row = table.find(other);
      if (row == table.end() || !all_have(row->second)) return false;
      if (!same_request(*row->second.front(), *plan.find(other))) return false;
    }
    return true;
  };
  for (const TensorSpec& spec : reports.front().pending) {
    const auto& row = table.at(spec.name);
    if (!all_have(row)) continue;
    const std::string wrong = find_mismatch(row, ranks);
    if (!wrong.empty()) {
      decision.wrong[spec.name] = wrong;
      continue;
    }
    const bool planned = plan.bucket_for(spec) >= 0;
    if (!planned || stuck || is_whole(spec.name)) decision.run.push_back(spec);
  }
  decision.progress = decision.progress || !decision.run.empty() || !decision.wrong.empty();

  // Operations due before the last regular one that runs now, but submitted by no rank: they do not
  // occur in every step.
  std::string last;
  for (const TensorSpec& spec : decision.run) {
    if (plan.bucket_of(spec.name) >= 0) last = spec.name;
  }
  for (const std::string& name : plan.skipped_before(last)) {
    if (!table.contains(name)) decision.skipped.push_back(name);
  }
  return decision;
}

std::vector<AgreedTransfer> split_decision(const Decision& decision, const Plan& plan) {
  std::map<int, size_t> in_bucket;
  for (const TensorSpec& spec : decision.run) {
    const int bucket = plan.bucket_for(spec);
    if (bucket >= 0) ++in_bucket[bucket];
  }
  std::vector<AgreedTransfer> transfers;
  for (const TensorSpec& spec : decision.run) {
    const int bucket = plan.bucket_of(spec.name);
    const bool whole = bucket >= 0 && in_bucket[bucket] == plan.names_in(bucket).size();
    if (!whole) {
      transfers.push_back({-1, {spec.name}});
    } else if (std::none_of(transfers.begin(), transfers.end(),
                            [&](const AgreedTransfer& one) { return one.bucket == bucket; })) {
      transfers.push_back({bucket, plan.names_in(bucket)});
    }
  }
  return transfers;
}

}  // namespace horon
