#pragma once

#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/core/parameters/parameter.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// The description of one parameter of a stage, known to every rank.
struct ParameterDescription {
  std::string name;
  Placement placement;                            ///< with its shape, shards and stages, of which there is at least one
  IndexRange place;                               ///< in the stage's buffers
  IndexRange section = {};                        ///< of the buffers, that the replicas divide; empty: all have all
  int section_parts = 0;                          ///< DividedSection::parts
  bool trained = true;                            ///< it has a gradient
  bool rounded = false;                           ///< its value is kept in bfloat16
  bool matrix = false;                            ///< ParameterSpec::matrix
  std::vector<std::string> state = {};            ///< Parameter::state
  std::map<std::string, Shape> whole_state = {};  ///< Parameter::whole_state
};

/// All parameters of a model of several stages; a rank holds only its own stage's.
class WholeModel {
 public:
  /// Gathers the stages' descriptions. The set must be allocated. Collective over the pipeline group. Throws Error, on
  /// all its ranks, if stages hold the same parameter without declaring it in their `stages`, or in different shapes.
  static WholeModel gather(ParallelState const& parallel, ParameterSet const& parameters);

  /// The parameters [stage]: those that have a gradient in the order of their places, then the others.
  std::vector<std::vector<ParameterDescription>> const& stages() const { return stages_; }
  /// The parameters' names, each once, stage after stage.
  std::vector<std::string> names() const;
  /// The number of elements of all parameters, each counted once.
  std::int64_t elements() const;
  /// Calls `visit(parameter)` for each parameter once, as the first stage that holds it describes it.
  template <class Visit>
  void for_each_parameter(Visit const& visit) const {
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      for (ParameterDescription const& parameter : stages_[stage]) {
        if (parameter.placement.stages.front() == static_cast<int>(stage)) {
          visit(parameter);
        }
      }
    }
  }

 private:
  explicit WholeModel(std::vector<std::vector<ParameterDescription>> stages) : stages_(std::move(stages)) {}

  void check() const;

  std::vector<std::vector<ParameterDescription>> stages_;
};

}  // namespace heddle
