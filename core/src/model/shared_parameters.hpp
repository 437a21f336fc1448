#pragma once

#include <heddle/core/attention/attention_positions.hpp>
#include <heddle/core/model/model_part.hpp>
#include <vector>

namespace heddle {

/// The parameters that a part of a model may share with other parts, also on other stages: tables of embeddings, the
/// output projection, and the positions that a stack's layers have in common.
class SharedParameters {
 public:
  SharedParameters(LayerSpec const& spec, ModelDescription const& description, VocabularySizes const& vocabulary,
                   PipelinePlan const& plan);

  /// Tables are declared by their first use on this rank; tied ones share a name.
  Parameter& embedding(std::size_t stack) const { return declared(table(stack)); }
  Parameter& output() const { return declared(table(description_.stacks.size())); }
  /// The positions for the layers `layers` of a stack, counted from its first; null if they take none. `stack_spec` is
  /// the stack's.
  std::shared_ptr<AttentionPositions> positions(LayerSpec const& stack_spec, std::size_t stack,
                                                IndexRange const& layers) const;

 private:
  struct Table {
    std::string name;
    std::int64_t size = 0;
  };
  /// The table of a stack's embedding, or of the output, whose use follows those of the stacks.
  Table table(std::size_t use) const;
  bool uses_table(IndexRange const& part, std::string const& name) const;
  Parameter& declared(Table const& table) const;

  LayerSpec const& spec_;
  ModelDescription const& description_;
  VocabularySizes const& vocabulary_;
  PipelinePlan const& plan_;
};

}  // namespace heddle
