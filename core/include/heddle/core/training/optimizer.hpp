#pragma once

#include <heddle/core/config/update_rule.hpp>
#include <heddle/core/layers/layer.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/operations/update.hpp>
#include <heddle/core/parameters/update_rules.hpp>
#include <heddle/core/tensor/uploaded_tensor.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

enum class GradientsAfter : std::uint8_t { kept, zero };

/// Updates the ranges of a parameter set's buffers whose state this rank keeps, each parameter by the rule of its
/// group. A step: `begin`, then `apply` for one range after another; between the two `direct`, the function of each of
/// `matrices`, and the sizes of whole parameters.
class Optimizer {
 public:
  /// The set must be allocated; its parameters get their rules. Keeps the rules' state, which is zero at the start, for
  /// `parts` of the gradients' buffer, ascending and without overlaps; matrices of rules over matrices must lie
  /// within one part. Throws as assign_rules does, and Error if a parameter that is not frozen has no gradient.
  Optimizer(OptimizerConfig const& config, KernelSource const& kernels, ParameterSet& parameters,
            std::vector<IndexRange> parts);

  /// The factor of every gradient in an update whose gradients have this norm.
  double gradient_scale(double norm) const {
    return config_.clip_norm > 0 && norm > config_.clip_norm ? config_.clip_norm / norm : 1;
  }

  /// Follows Parameter::state_begin, from which steps are counted, and Parameter::still_frozen, which the caller has
  /// changed, and keeps the state. Between two steps.
  void regroup();

  using Step = UpdateStep;
  /// Gives the next calls of apply the numbers of a step; its number, 1 for the run's first, is made each rule's.
  void begin(Step const& step) const;
  /// A matrix that a rule over matrices updates, and whose elements' state is kept here.
  struct Matrix {
    Parameter const* parameter;
    Tensor direction;  ///< [local shape]; `direct` fills it, `apply` needs the function's result
    std::shared_ptr<MatrixFunction> function;  ///< of the whole matrix
    std::vector<MatrixState> state;            ///< that the function keeps
  };
  /// The matrices in the order of their places, those that still wait, too.
  std::vector<Matrix> matrices() const;
  void direct(Execution& execution) const;
  /// Sums over the elements of a parameter whose rule needs its sizes (RuleDefinition::sizes).
  struct Squares {
    Parameter const* parameter;
    double value = 0, direction = 0;
  };
  /// The sums of this rank's slices, for the next step, after the functions, in the order of their places.
  std::vector<Squares> squares(Execution& execution) const;
  /// Takes them back, those of whole parameters. Must be called before `apply` where there are any.
  void set_squares(std::vector<Squares> const& whole) const;
  /// Updates the buffers' elements in `range`, which must lie within one of the parts: one call of a kernel for each
  /// rule among them, none for frozen parameters and those that wait. The caller increments the versions, once. With
  /// GradientsAfter::zero all gradients in `range` are zero afterwards, whether they were used or not; there are more
  /// calls of the kernels, and the same new values.
  void apply(Execution& execution, IndexRange const& range, GradientsAfter after = GradientsAfter::kept) const;

  /// Whether averages of the values are kept: as state under average_key.
  bool has_averages() const { return has_averages_; }
  /// After `updates` of the run's updates: exchanges the values in `range`, which must lie within one of the parts,
  /// with their averages, where an update has made one. A second call brings all back, bitwise. The caller increments
  /// the versions.
  void swap_averages(Execution& execution, IndexRange const& range, std::int64_t updates) const;

  /// sum [1] in float64 += Σ g² of the gradients in `range`, those of the numbers that the values stand for.
  void add_sum_of_squares(Execution& execution, IndexRange const& range, Tensor const& sum) const;

  std::vector<IndexRange> const& parts() const { return parts_; }
  /// The tensors that the rules keep here, by key, each [numbers with that key], in the order of the buffers.
  std::map<std::string, Tensor> const& state() const { return state_; }
  /// The state of that key of the buffers' elements in `range`, [range.count()]. Throws Error unless one rule keeps it
  /// for all of them, and here.
  Tensor state_in(std::string const& key, IndexRange const& range) const;
  /// The bytes of all state on this rank, and of the directions.
  std::int64_t state_bytes() const;

 private:
  struct Rule {
    RuleDefinition definition;
    std::shared_ptr<Update> kernel;
    UpdateRule chosen;
    RuleOptions options{};
    ValueForm form{};
    std::int64_t state_begin = 0;
  };
  /// Neighbours with one rule in one part, and the state of their elements.
  struct Piece {
    IndexRange range;
    std::size_t rule = 0;
    RuleState state{};               ///< flat
    Tensor average{};                ///< of the values, flat; empty: none is kept
    std::vector<Tensor> averaged{};  ///< the values of which it is made, with "lawa"
    Tensor direction{};              ///< of a rule of whole parameters, flat
    Tensor squares{};  ///< float64 [2, 1], of a rule that needs the sizes: of the value and of the direction
  };

  void add_rules(KernelSource const& kernels);
  /// Finds the rows that stay zero, as far as this rank has them.
  void find_zeros();
  /// Cuts the parts into pieces and gives them their state, which is allocated the first time.
  void group();
  void add_pieces();
  void place_state();
  void place_directions();
  /// Calls `visit(piece)` for those of rules of whole parameters that the next step updates.
  template <class Visit>
  void for_each_whole(Visit const& visit) const {
    for (Piece const& piece : pieces_) {
      if (!piece.direction.empty() && !ranges_[piece.rule].first->still_frozen) {
        visit(piece);
      }
    }
  }
  std::vector<Piece>::const_iterator first_piece(std::int64_t begin) const;
  /// The call of a kernel for these elements of a piece.
  UpdateCall call_for(Piece const& piece, IndexRange const& updated) const;
  /// Updates these elements of a piece.
  void update(Execution& execution, Piece const& piece, IndexRange const& updated) const;
  /// Lets the average follow these new values of a piece.
  void follow(Execution& execution, Piece const& piece, IndexRange const& updated, Tensor const& value) const;
  /// Its mean of the newest values: see `average_count` in docs/reference/optimizers.md.
  void follow_latest(Execution& execution, Piece const& piece, IndexRange const& own, Tensor const& value) const;
  /// The part of the newest values in the averages that update number `step` makes (1 for the first).
  double share_of_newest(std::int64_t step) const;
  /// Adds a number to each of these [n].
  void add(Execution& execution, Tensor const& numbers, double number) const;

  OptimizerConfig config_;
  bool has_averages_;
  ParameterSet& parameters_;
  std::vector<IndexRange> parts_;
  std::vector<RuleRange> ranges_;  ///< of the whole gradient buffer
  std::vector<Rule> rules_;        ///< of ranges_
  std::vector<Piece> pieces_;      ///< ascending; without parameters that are frozen for good
  std::vector<IndexRange> zeros_;  ///< elements of the buffers that each update sets to zero
  std::shared_ptr<TensorOps> operations_;
  bool any_transformed_ = false;  ///< elements of some rule stand for other values
  Tensor scratch_;                ///< for these and to exchange averages; empty where there are neither
  std::map<std::string, Tensor> state_;
  std::map<Parameter const*, std::shared_ptr<MatrixFunction>> functions_;
  Tensor directions_;             ///< of all pieces with one, adjacent
  Tensor squares_;                ///< of all pieces with them, float64 [pieces, 2]
  UploadedTensor scalars_;        ///< UpdateCall::scalars of each of rules_
  UploadedTensor shares_;         ///< float64 [rules_]: of the newest values in their averages
  Tensor updates_;                ///< int32 [rules_], on the host: the number of this update
  UploadedTensor parts_of_mean_;  ///< float64 [average_count]: 1 / (i + 1), of values number i in a mean of i + 1
};

}  // namespace heddle
