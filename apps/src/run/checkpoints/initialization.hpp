#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/core/parallel/communicator.hpp>
#include <heddle/dist/state/whole_model.hpp>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <map>
#include <string>
#include <vector>

namespace heddle {

/// The parameters with which a new run starts, from the checkpoint that train.initialize_from names: which of that
/// run's parameters become which of this one's. The layouts of the two may differ.
class Initialization {
 public:
  struct Setup {
    Config const& config;
    WholeModel const& model;
    std::string const& source_model;  ///< the vocabulary of this run's data
    std::string const& target_model;
  };

  /// Opens the checkpoint and verifies its values. Throws DataError if it does not verify or has another vocabulary,
  /// ConfigError for a parameter that is neither there nor in train.initialize_missing, and for patterns that match
  /// nothing. Collective over `world`.
  Initialization(Setup const& setup, Communicator const& world);

  /// Sets this rank's part of the parameters that are taken; the others keep their values. Throws DataError as
  /// Checkpoint::read does. Not collective.
  void apply(ParameterSet& parameters) const;

  /// The record of the other run.
  CheckpointContents const& contents() const { return checkpoint_.contents(); }

  /// The other run's checkpoint as the base of this one's, for the parameters that are frozen here.
  CheckpointBase base() const;

  /// Messages about what is taken, what starts new and what is left there.
  std::vector<std::string> describe() const;

 private:
  void find_sources(Setup const& setup);

  Checkpoint checkpoint_;
  std::map<std::string, std::string> sources_;  ///< names there by names here
  CheckpointBase base_;                         ///< its names: those of them whose parameters are frozen here
  std::vector<std::string> new_;
  std::vector<std::string> left_;
  std::vector<std::string> notes_;
};

}  // namespace heddle
