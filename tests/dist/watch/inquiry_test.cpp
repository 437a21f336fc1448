#include "watch/inquiry.hpp"

#include "test.hpp"

namespace heddle {
namespace {

constexpr double limit = 2;
constexpr double never = 1000;

/// Rank 0 of four, which has been idle since its start, asks the others; a look at the clock every 10 ms.
struct Questions {
  /// A rank's answer to a question at this time; nothing if it is silent.
  using Answer = std::function<std::optional<RankStatus>(int rank, double now)>;

  /// The time of the report of a hang; `never` if there is none in 100 s.
  double time_of_report(Answer const& answer) {
    for (int tick = 0; tick < 10'000; ++tick) {
      double const now = 0.01 * tick;
      RankStatus own;
      own.idle_seconds = now;
      own.finishes = finishes;
      switch (inquiry.next(own, now)) {
        case Inquiry::Action::report:
          return now;
        case Inquiry::Action::ask:
          ++asked;
          for (int rank = 1; rank < 4; ++rank) {
            if (auto const status = answer(rank, now)) {
              inquiry.answered(rank, *status, now);
            }
          }
          break;
        case Inquiry::Action::none:
          break;
      }
    }
    return never;
  }

  static RankStatus idle_for(double seconds, bool finishes = false) {
    RankStatus status;
    status.idle_seconds = seconds;
    status.finishes = finishes;
    return status;
  }

  Inquiry inquiry{limit, 4, 0};
  bool finishes = false;
  int asked = 0;
};

TEST(InquiryTest, RanksThatAllWaitHangAfterTheLimit) {
  Questions questions;
  EXPECT_NEAR(questions.time_of_report([](int, double now) { return Questions::idle_for(now); }), limit, 0.02);
  EXPECT_LE(questions.asked, 20);
  for (auto const& status : questions.inquiry.statuses()) {
    EXPECT_TRUE(status.has_value());
  }
}

TEST(InquiryTest, ARankThatNeverAnswersIsAskedForTheWholeLimit) {
  Questions questions;
  double const at = questions.time_of_report(
      [](int rank, double now) { return rank == 2 ? std::nullopt : std::optional(Questions::idle_for(now)); });
  EXPECT_NEAR(at, 1.1 * limit, 0.02);
  EXPECT_FALSE(questions.inquiry.statuses()[2].has_value());
  EXPECT_TRUE(questions.inquiry.statuses()[1].has_value());
}

// A rank that is stopped for 1.5 s and runs for 0.1 s in turn: most questions find it stopped.
TEST(InquiryTest, ARankThatRunsNowAndThenIsHeardWithinTheLimit) {
  Questions questions;
  EXPECT_EQ(questions.time_of_report([last = -1.0](int rank, double now) mutable -> std::optional<RankStatus> {
    if (rank != 2) {
      return Questions::idle_for(now);
    }
    // Its own time is mostly that of the present run, and of a tick for the stop.
    double const phase = now - 1.6 * static_cast<int>(now / 1.6);
    if (phase < 1.5 && now - last < 1.6) {
      return std::nullopt;
    }
    last = now;
    return Questions::idle_for(0.2);
  }),
            never);
}

TEST(InquiryTest, TheSilenceOfARankThatCannotBeReachedMeansNothing) {
  auto const answer = [](int rank, double now) {
    return rank == 2 ? std::nullopt : std::optional(Questions::idle_for(now));
  };
  Questions questions;
  questions.inquiry.set_reachable(2, false);
  EXPECT_FALSE(questions.inquiry.reaches_all());
  EXPECT_EQ(questions.time_of_report(answer), never);
  // Once it is heard, it can be reached.
  questions.inquiry.answered(2, Questions::idle_for(0), 0);
  EXPECT_TRUE(questions.inquiry.reaches_all());
  EXPECT_LT(questions.time_of_report(answer), 2 * limit);
}

TEST(InquiryTest, AfterTheLastStepOnlySilenceIsAHang) {
  Questions questions;
  questions.finishes = true;
  EXPECT_EQ(questions.time_of_report([](int, double now) { return Questions::idle_for(now, true); }), never);
  Questions silent;
  silent.finishes = true;
  EXPECT_NEAR(silent.time_of_report([](int rank, double now) {
    return rank == 2 ? std::nullopt : std::optional(Questions::idle_for(now, true));
  }),
              1.1 * limit, 0.02);
  Questions early;  // one has left, the others wait for it
  EXPECT_NEAR(early.time_of_report([](int rank, double now) { return Questions::idle_for(now, rank == 2); }), limit,
              0.02);
}

TEST(InquiryTest, LateProgressOfAnyRankIsNoHang) {
  Questions questions;
  double const last_progress = 7;
  double const at = questions.time_of_report(
      [&](int rank, double now) { return Questions::idle_for(rank == 3 ? std::max(0.0, now - last_progress) : now); });
  EXPECT_NEAR(at, last_progress + limit, 0.02);
}

TEST(InquiryTest, LostAnswersAreNoSilence) {
  Questions questions;
  int lost = 0;
  EXPECT_NEAR(questions.time_of_report([&](int, double now) {
    return ++lost % 4 == 0 ? std::optional(Questions::idle_for(now)) : std::nullopt;
  }),
              limit, 0.15);
  for (auto const& status : questions.inquiry.statuses()) {
    EXPECT_TRUE(status.has_value());
  }
}

}  // namespace
}  // namespace heddle
