# Sidekiq: jobs now, later and again after an error. A worker or a server that is killed (kill -9) loses the jobs at work, for
# which Sidekiq promises nothing, and no others. Its poller takes what is due with a script.
require "sidekiq"
require "sidekiq/api"

Redis.sadd_returns_boolean = false if Redis.respond_to?(:sadd_returns_boolean=)

PORT = ENV.fetch("PORT")
AT_ONCE = 5
options = { url: "redis://127.0.0.1:#{PORT}/0", reconnect_attempts: 20, reconnect_delay: 0.2 }
Sidekiq.configure_client { |config| config.redis = options }
Sidekiq.configure_server do |config|
  config.redis = options
  config.options[:poll_interval_average] = 0.5
end

class Count
  include Sidekiq::Worker
  sidekiq_options retry: 3
  sidekiq_retry_in { 1 }

  def perform(hash, number, seconds, fails)
    sleep(seconds)
    tries = Sidekiq.redis { |redis| redis.hincrby(hash, number, 1) }
    raise "not yet" if tries <= fails
  end
end

def wait(what, seconds = 60)
  finish = Time.now + seconds
  until (yield rescue false)
    raise "never: #{what}" if Time.now > finish
    sleep 0.05
  end
end

def redis(&block) = Sidekiq.redis(&block)

def worker
  command = ["sidekiq", "-r", File.expand_path(__FILE__), "-c", AT_ONCE.to_s]
  Process.spawn(*command, out: ENV["LOG"], err: ENV["LOG"])
end

def kill(pid)
  Process.kill(:KILL, pid)
  Process.wait(pid)
end

def is_refused
  TCPSocket.new("127.0.0.1", PORT).close
  false
rescue Errno::ECONNREFUSED
  true
end

def main
  redis(&:flushall)
  started = [worker]
  server = nil
  40.times { |at| Count.perform_async("now", at, 0, 0) }
  20.times { |at| Count.perform_in(1, "later", at, 0, 0) }
  3.times { |at| Count.perform_async("again", at, 0, 2) }
  wait("jobs now, later, and again") do
    redis { |r| [r.hlen("now"), r.hlen("later"), r.hvals("again")] } == [40, 20, %w[3 3 3]]
  end
  raise "done twice" unless redis { |r| r.hvals("now") + r.hvals("later") }.all? { |times| times == "1" }

  200.times { |at| Count.perform_async("killed", at, 0.02, 0) }
  wait("fifty jobs") { redis { |r| r.hlen("killed") } >= 50 }
  kill(started.pop)
  started << worker
  wait("the other jobs") { Sidekiq::Queue.new.size.zero? && redis { |r| r.hlen("killed") } >= 200 - AT_ONCE }

  200.times { |at| Count.perform_in(at * 0.005, "server", at, 0.01, 0) }
  wait("fifty jobs") { redis { |r| r.hlen("server") } >= 50 }
  if ENV["SERVER_COMMAND"]
    Process.kill(:KILL, ENV["SERVER_PID"].to_i)
    wait("the end of the server") { is_refused }
    server = Process.spawn(*ENV["SERVER_COMMAND"].split("\n"), out: File::NULL)
  end
  wait("all jobs") do
    Sidekiq::Queue.new.size.zero? && Sidekiq::ScheduledSet.new.size.zero? && redis { |r| r.hlen("server") } >= 200 - AT_ONCE
  end
ensure
  started&.each { |pid| kill(pid) }
  kill(server) if server
end

main if $PROGRAM_NAME == __FILE__
