#include "tables.hpp"

#include <algorithm>
#include <cmath>

namespace heddle {

Tables::Tables(LayerSpec const& spec, ModelDescription const& description, VocabularySizes const& vocabulary,
               PipelinePlan const& plan)
    : spec_(spec), description_(description), vocabulary_(vocabulary), plan_(plan) {}

Tables::Table Tables::table(std::size_t use) const {
  bool const is_output = use == description_.stacks.size();
  StackDescription const& stack = is_output ? description_.stacks.back() : description_.stacks[use];
  std::int64_t const size = stack.side == Side::source ? vocabulary_.source : vocabulary_.target;
  bool const tied = description_.keys.tie_embeddings;
  if (tied && vocabulary_.joint) {
    return {"embedding.weight", size};
  }
  return {is_output && !tied ? "output.weight" : stack.name + ".embedding.weight", size};
}

bool Tables::uses(std::size_t use, IndexRange const& part) const {
  return use == description_.stacks.size() ? part.end == description_.layers() : description_.has_entry(use, part);
}

std::vector<int> Tables::stages_with(std::string const& name) const {
  std::vector<int> stages;
  for (int stage = 0; stage < plan_.stages(); ++stage) {
    bool holds = false;
    for (IndexRange const& part : plan_.parts[static_cast<std::size_t>(stage)]) {
      for (std::size_t use = 0; use <= description_.stacks.size(); ++use) {
        holds = holds || (uses(use, part) && table(use).name == name);
      }
    }
    if (holds) {
      stages.push_back(stage);
    }
  }
  return stages;
}

Parameter& Tables::declared(Table const& table) const {
  if (Parameter* const present = spec_.parameters.find(table.name)) {
    return *present;
  }
  double const deviation = 1 / std::sqrt(static_cast<double>(spec_.model.d_model));
  auto stages = stages_with(table.name);
  if (stages.size() == 1) {
    stages.clear();
  }
  return spec_.parameters.reserve({.name = table.name,
                                   .shape = {table.size, spec_.model.d_model},
                                   .initializer = Initializer::normal(deviation),
                                   .shard = {0},
                                   .stages = std::move(stages)});
}

}  // namespace heddle
