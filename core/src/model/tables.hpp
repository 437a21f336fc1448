#pragma once

#include <heddle/core/model/model_part.hpp>
#include <vector>

namespace heddle {

/// The tables of a part: the embedding of each stack that it begins and the output projection's. Each is declared by
/// the first use on this rank; tied ones share a name.
class Tables {
 public:
  Tables(LayerSpec const& spec, ModelDescription const& description, VocabularySizes const& vocabulary,
         PipelinePlan const& plan);

  Parameter& embedding(std::size_t stack) const { return declared(table(stack)); }
  Parameter& output() const { return declared(table(description_.stacks.size())); }

 private:
  struct Table {
    std::string name;
    std::int64_t size = 0;
  };
  /// The table of a stack's embedding, or of the output, whose use follows those of the stacks.
  Table table(std::size_t use) const;
  bool uses(std::size_t use, IndexRange const& part) const;
  std::vector<int> stages_with(std::string const& name) const;
  Parameter& declared(Table const& table) const;

  LayerSpec const& spec_;
  ModelDescription const& description_;
  VocabularySizes const& vocabulary_;
  PipelinePlan const& plan_;
};

}  // namespace heddle
