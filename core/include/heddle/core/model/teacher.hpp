#pragma once

#include <deque>
#include <heddle/core/config/config.hpp>
#include <heddle/core/model/model.hpp>
#include <vector>

namespace heddle {

/// A trained model from whose distributions over each next token another one learns, the student (word-level
/// distillation: Hinton et al. 2015, Kim and Rush 2016). Each rank that computes the student's loss has its slice of
/// the whole teacher over the tensor and context groups; other pipeline stages have nothing of it. It sees the
/// student's packs, without dropout, and has no gradients.
class Teacher {
 public:
  /// A teacher with the configuration `model` beside the student of `spec`, whose kernels, dtype and layout it uses.
  /// The two must predict alike. Throws ConfigError as Model does.
  Teacher(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
          ModelConfig const& model);
  Teacher(Teacher const&) = delete;
  Teacher& operator=(Teacher const&) = delete;

  /// Have no values until they are bound or allocated, and filled.
  ParameterSet& parameters() { return parameters_; }
  /// Its output for the context's pack, from the arena. Collective over the tensor and context groups.
  OutputLoss::Teacher output(LayerContext const& context) const;

 private:
  ModelConfig config_;
  ParallelState parallel_;
  ParameterSet parameters_;
  Model model_;
};

/// Whether two models take the same samples and predict the same rows: they have the same stacks and kinds of input.
bool predicts_alike(ModelDescription const& teacher, ModelDescription const& student);

/// The teachers of `config` for `student`, its model of `spec`, whose loss has their part from now on; none on a stage
/// that does not end the model. Throws as Teacher does.
std::deque<Teacher> make_teachers(Model& student, LayerSpec const& spec, LayerRegistry const& layers,
                                  VocabularySizes const& vocabulary, Config const& config);

}  // namespace heddle
